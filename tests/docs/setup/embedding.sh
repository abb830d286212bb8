# As in the folder of the source code; the example listens on PORT.
ln -s "$SOURCE/examples" examples
export PORT=8090
