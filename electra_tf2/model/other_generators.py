from electra_tf2.model.generator import TwoTowerClozeModel as TwoTowerClozeModel
from electra_tf2.model.generator import UniformGenerator as UniformGenerator
