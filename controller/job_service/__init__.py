"""How the job service is reached: its workers' socket, and gRPC for everybody else."""
