"""Scripts like those of real repositories, whose bounds were kept before their twins ran."""
