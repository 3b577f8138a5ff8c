"""What makes load and watches what becomes of it, most of it in processes of its own."""
