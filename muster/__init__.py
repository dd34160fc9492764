"""What a training script may import. Each module works alone, without the trainer and the control side.

`muster.data`        data exactly once: a stream of samples whose position is one number
`muster.checkpoint`  verified checkpoints that survive a kill at any moment
`muster.metrics`     metrics.jsonl and TensorBoard events
`muster.stop`        SIGTERM and Ctrl-C as a request that the training loop reads
`muster.files`       files that survive a kill and a full disk
`muster.errors`      faults with a hint and an exit code
"""
