"""Words that tell a vocabulary's casing, as released vocabularies have them."""

# Of BERT's uncased vocabulary: a capital letter that has no lower case, taken apart Hangul, kana without their marks.
UNCASED = ["[unused993]", "the", "##ing", "ae", "ß", "ı", "ℝ", "##ℝ", "™", "ᄀ", "か", "الله", "##ρ", "一", "1990"]
# Of BERT's cased vocabulary.
CASED = ["[unused1]", "the", "The", "##ing", "##A", "Paris", "Á", "é", "##ß", "Ł", "1990", "ℝ", "USA", "house", "café"]
