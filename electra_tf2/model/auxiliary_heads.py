from electra_tf2.model.heads import ContrastHead as ContrastHead
from electra_tf2.model.heads import PredictionHead as PredictionHead
from electra_tf2.model.heads import TiedHead as TiedHead
from electra_tf2.model.heads import vocabulary_head as vocabulary_head
