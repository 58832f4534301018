"""What a broker keeps of atomic batches before their commit.

nats-server keeps the messages of an open batch beside its stream, whose limits do not count them:
in the memory of the leader if the stream has several copies, else on the disk. It forgets them 10 s
after the newest one. It counts batches and messages and not their bytes, and its own limits
(50 batches of 1,000 messages for each stream) are 12 GB for the credential of one agent.
"""

MAX_BATCH = 250  # messages
MAX_OPEN = 8  # batches of one stream

# A part of the block `jetstream` in the configuration of nats-server.
BATCH_LIMITS = (
    f"limits {{ batch {{ max_inflight_per_stream: {MAX_OPEN}, max_msgs: {MAX_BATCH} }} }}"
)
