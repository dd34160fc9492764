"""Bytes onto many hosts with one copy from here: hosts pass on to each other what they lack."""
