# Takes `characters`, a whole number, and reads a column; its scores are what `config` says, or 1.
read -r start
echo '{"type": "ready", "name": "judge", "config_schema": {"type": "object", "properties": {"characters": {"type": "integer"}}, "additionalProperties": false}}'
read -r question
echo '{"type": "scores", "id": 1, "scores": [{"reward": 1.0}]}'
