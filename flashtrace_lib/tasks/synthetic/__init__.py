"""Generators of synthetic records in the schemas of the data sets: no network is needed, and no record is copied.

Every record is drawn from a seed, every answer computed, every supporting passage known. The wordings lie in
``templates``. `datasets.synthetic_records` draws them.

Longer problems with held-out wordings come as examples: `documents_qa`, `long_word_problems`, `long_exercises`,
`reading_questions`, `reading_stories`, each from the module of its name; `plain_questions` are written by hand.
"""
