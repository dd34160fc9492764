"""`python -m muster`: the command, where its folder is not on the PATH. A node's image has none."""

from importlib import import_module

import_module(".deploy.commands.main", __package__).main()
