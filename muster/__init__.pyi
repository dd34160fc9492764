from muster.deploy.api import Cluster as Cluster
from muster.deploy.api import DeployError as DeployError
from muster.deploy.api import Outcome as Outcome
from muster.deploy.api import Refused as Refused
from muster.deploy.api import Run as Run
from muster.deploy.api import RunFailed as RunFailed
from muster.deploy.api import UsageError as UsageError
from muster.training import Training as Training
