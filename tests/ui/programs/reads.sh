# Reads a column that rows do not have.
read -r start
echo '{"type": "ready", "reads": ["level", "prompt"]}'
read -r question
echo '{"type": "scores", "id": 1, "scores": [{"reward": 1.0}]}'
