"""`make demo`: pre-training and fine-tuning on text that every machine has."""
