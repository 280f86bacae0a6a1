"""Files of models, without TensorFlow."""

ELSEWHERE = "--format onnx and saved_model write any network"  # ends what refuses a network of ours
