from electra_tf2.model.softmax import sample_from_logits as sample_from_logits
from electra_tf2.model.softmax import soft_losses as soft_losses
from electra_tf2.model.softmax import token_log_probs as token_log_probs
