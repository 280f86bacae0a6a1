"""Names of tables' columns, in files of one's own and in those that others distribute.

Of several names for a column, the first one in a table counts.
"""

# Of a table of one's own, where nothing else is said.
TEXT = "text"
LABEL = "label"

# One or two texts and a label: GLUE's files as they are distributed, and as `datasets` has them.
ONE_TEXT = ("sentence", "text")
FIRST_TEXT = ("sentence1", "premise", "question1", "question", "text1", "#1 String")
SECOND_TEXT = ("sentence2", "hypothesis", "question2", "sentence", "text2", "#2 String")
LABELS = ("label", "gold_label", "score", "is_duplicate", "Quality")

# Texts that vectors are learned from: names of ours, then of SimCSE's files, sentence-transformers' and GLUE's.
ANCHOR = (
    "text",
    "anchor",
    "sent0",
    "sentence1",
    "text1",
    "sentence",
    "query",
    "question",
    "question1",
    "premise",
)
POSITIVE = ("positive", "sent1", "sentence2", "text2", "answer", "question2", "hypothesis")
NEGATIVE = ("negative", "hard_neg")

# Pairs of texts that people gave a score, on which vectors are scored.
SCORED_PAIR = (("text1", "sentence1", "sentence_A"), ("text2", "sentence2", "sentence_B"))
SCORE = ("score", "label", "similarity")

# Lists of words and of their tags.
WORDS = ("words", "tokens")
TAGS = ("tags", "ner_tags", "chunk_tags", "pos_tags", "labels")

# A word and its tag in a row of its own, and what sentence and document it is of; in lower case.
WORD = ("word", "words", "token", "tokens", "form")
TAG = ("tag", "label", "ner", "ner_tag")
PART_OF_SPEECH = ("pos", "upos", "xpos")  # the tag where nothing else is
SENTENCE_OF_WORD = ("sentence #", "sentence_id", "sentence_idx", "sent_id", "sentence")
DOCUMENT_OF_WORD = ("document", "document_id", "doc_id", "doc")

# Spans of characters that are marked in a text.
MARKED_SPANS = ("entities", "spans", "ents", "label", "labels")

# A question about a context, in any case.
QUESTION = ("question",)
CONTEXT = ("context", "passage", "paragraph", "document")
# Its answers: objects or lists of texts and places; or the text of one answer.
ANSWERS = ("answers", "answer", "answer_text")

# What an object with several questions is called by.
IDENTITY = ("idx", "id", "example_id")
