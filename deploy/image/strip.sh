# Removes what Python brings to install packages, with the programs beside this file: the image may
# be for another machine than this one.
rm() { /opt/strip/ld --library-path /opt/strip /opt/strip/rm "$@"; }

for found in /usr/local/lib/python3* /usr/lib/python3*; do
  rm -rf "$found"/ensurepip "$found"/*-packages/pip "$found"/*-packages/pip-*
done
rm -rf /usr/local/bin/pip* /usr/share/python-wheels /root/.cache
