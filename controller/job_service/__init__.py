"""The connections to the job service: a socket for the network's workers, and gRPC for all other clients."""
