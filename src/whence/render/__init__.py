"""Show an explanation: terminal, HTML, figures. One visual language: blue for the target, red against it."""
