"""What other programs import: `joulie.client`. Everything else is internal and may change."""
