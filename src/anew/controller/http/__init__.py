"""What stands before the routes: who is let in, bodies within their limits, errors as answers."""
