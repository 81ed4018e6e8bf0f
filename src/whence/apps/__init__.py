"""apps: what people start: the command line, the server with its page, and the doctor."""
