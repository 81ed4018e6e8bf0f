"""run: batches of rows through a model, gradients along paths, changed rows, and how much memory a batch may take."""
