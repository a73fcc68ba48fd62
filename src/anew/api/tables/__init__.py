"""Wire models of tables: requests, views, and what nodes say of copies of segments."""
