"""Generators of the documentation: tables and a picture, made from the code they describe."""
