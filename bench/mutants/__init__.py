"""Mutation testing of the numbers: does a test fail when a line of a method, a metric or a relevance rule is changed?

Three steps, so that the last needs neither mutmut nor coverage and can run on any machine with pytest:

* `make`: mutmut's operators → a seeded sample of changes, as text patches in a JSON file.
* `cover`: which tests run which lines, and how long they take → a JSON file.
* `run`: for every change a forked process that imports whence with it and runs the tests of that line, the quickest first.
"""
