"""Ten more like those of real repositories, written by somebody who had read no rule."""
