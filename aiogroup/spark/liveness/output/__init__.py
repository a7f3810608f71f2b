"""What the analysis of the time-outs leaves behind: tables, a page, text and JSON."""
