"""What people and programs read: tables, JSON and plain lines."""
