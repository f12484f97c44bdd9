"""The control plane: what each switch is told, and telling it over P4Runtime."""
