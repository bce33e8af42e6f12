"""The nearer a response is to `characters` long, the better: 1 at that length, 0 where it is empty or twice as long."""

from rlpipe_plugin import Score, reward, run

SCHEMA = {
    "type": "object",
    "properties": {"characters": {"type": "integer", "minimum": 1}},
    "required": ["characters"],
    "additionalProperties": False,
}


@reward(version="1", config_schema=SCHEMA)
def length(sample, config):
    wanted, found = config["characters"], len(sample.response)
    return Score(max(0.0, 1.0 - abs(found - wanted) / wanted), parsed=found, parts={"characters": found})


run()
