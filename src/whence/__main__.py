"""`python -m whence`."""

from whence.apps.cli import main

main()
