"""The paper's claims, judged by rules from stored tables."""
