"""Names of nvFuser: what programs for it call, answered or refused."""
