"""The MLX backend; its modules need the extra ``mlx``, all but ``library``, which says what is missing."""
