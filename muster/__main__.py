"""`python -m muster`: the `muster` command where its folder is not on the PATH. A node's image does not contain it."""

from importlib import import_module

import_module(".deploy.commands.main", __package__).main()
