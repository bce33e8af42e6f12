# Cannot start.
echo "reward.sh: there is no module 'numbers'" >&2
exit 3
