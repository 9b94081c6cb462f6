"""Room: figures and the self-contained page that show many universes at once.

Everything here takes plain data (tables, arrays, text), never an object that fits something.
"""
