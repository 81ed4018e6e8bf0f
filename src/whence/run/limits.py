"""Numbers that the command line shows as defaults before anything heavy is imported."""

BATCH_TOKENS = 8192  # tokens, padding included, that run at once
XI_SYNTACTIC = 0.1  # how far a syntactic head must beat the best fixed distance
XI_POSITIONAL = 0.8  # how often a positional head must point to one position
