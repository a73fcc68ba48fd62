"""Tables on the controller: making and changing them, refreshes and loads, what nodes hold of them."""
