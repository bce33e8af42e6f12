# Cannot judge anything.
read -r start
echo '{"type": "ready"}'
read -r question
echo "line 12: no such key" >&2
echo '{"type": "scores", "id": 1, "scores": [{"error": "KeyError: level"}]}'
