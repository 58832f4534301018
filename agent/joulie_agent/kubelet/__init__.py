"""What the kubelet knows: which pod has which devices.

In: the socket of the kubelet's PodResources API.
Out: devices by pod, as the kubelet assigned them.
Not here: what the devices are (`sources`).
"""
