"""Whatever bytes reach a parser from outside: targets that atheris and hypothesis both feed."""
