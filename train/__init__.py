"""How the embedded models were made, from public data: one module a step, one command each.

Order: ``vocabulary`` (cut all-MiniLM-L6-v2 to 8,192 word pieces), ``masked_lm`` (the base), ``causal_lm``, then one
adapter a task with ``classify`` and ``question_answering``; ``evaluate`` measures what is shipped. ``all`` runs the
whole on one GPU, with what ``pack`` put into a folder for it. The package never imports any of this.
"""
