"""Files of models, without TensorFlow."""

ANY_NETWORK_HINT = (
    "--format onnx and saved_model write any network"  # ends errors of formats that cannot hold a network
)
