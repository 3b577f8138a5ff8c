"""What the images of docker-compose.yml do between a service's command or environment and its server."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from delayq.embedded.processes import LOCALHOST
from testbed import jars, rocketmq, tools
from testbed.errors import ServerMissing
from testbed.jars import find_java
from testbed.kafka import available as kafka_available
from testbed.zookeeper import find_jars
from tests.deploy.compose import Image, Names

__all__ = ["grafana_image", "kafka_image", "prometheus_image", "rocketmq_image", "scrape", "zookeeper_image"]

#: A Java that is to be small and to start soon.
JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Any will do; the image has one of its own.
KAFKA_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
# apache/rocketmq, distribution/bin: mqnamesrv calls runserver.sh, mqbroker calls runbroker.sh, and mqadmin calls tools.sh.
# The first two put JAVA_OPT_EXT behind all that they tell Java; mqbroker takes --enable-proxy for itself.
ROCKETMQ = {
    "mqnamesrv": 'exec {java} {of_names} $JAVA_OPT_EXT org.apache.rocketmq.namesrv.NamesrvStartup "$@" -c {names}',
    "mqbroker": """main=broker.BrokerStartup mode=
for word; do
  shift
  case $word in --enable-proxy) main=proxy.ProxyStartup mode='-pm local' ;; *) set -- "$@" "$word" ;; esac
done
exec {java} {of_broker} $JAVA_OPT_EXT org.apache.rocketmq.$main "$@" $mode""",
    "mqadmin": 'exec {java} org.apache.rocketmq.tools.command.MQAdminStartup "$@"',
}


def zookeeper_image(given: Mapping[str, str], names: Names, folder: Path) -> Image:
    """Its start script makes a file of settings of these variables. Raises ServerMissing."""
    data = folder / "data"
    data.mkdir(parents=True)
    (data / "myid").write_text(given["ZOO_MY_ID"])
    members = []
    for member in given["ZOO_SERVERS"].split():
        number, _, address = member.partition("=")
        host, peer, vote = address.partition(";")[0].split(":")
        ports = ":".join(str(names.port(host, int(port))) for port in (peer, vote))
        members.append(f"{number}={LOCALHOST}:{ports};{LOCALHOST}:{names.port(host, 2181)}")
    settings = {
        "dataDir": data, "tickTime": 2000, "initLimit": 5, "syncLimit": 2, "maxClientCnxns": 60,
        "standaloneEnabled": given["ZOO_STANDALONE_ENABLED"], "admin.enableServer": given["ZOO_ADMINSERVER_ENABLED"],
        "autopurge.purgeInterval": given["ZOO_AUTOPURGE_PURGEINTERVAL"], "preAllocSize": 256,
    }  # fmt: skip
    config = folder / "zoo.cfg"
    config.write_text("\n".join([*(f"{key}={value}" for key, value in settings.items()), *members, ""]))
    java = (str(find_java("ZooKeeper")), "-Xmx96m", *JAVA, "-cp", ":".join(find_jars()))
    return Image((*java, ZOOKEEPER, str(config)), {"/data": data})


def kafka_image(folder: Path) -> Image:
    """Its start script has Kafka's own KafkaDockerWrapper make the settings of the variables. Raises ServerMissing."""
    kafka_available()
    java = shlex.join([str(find_java("Kafka")), *JAVA, "-Xmx400m", "-cp", f"{jars.cache('kafka')}/*"])
    folders = {kind: folder / kind for kind in ("default", "mounted", "final")}
    for one in folders.values():
        one.mkdir(parents=True)
    for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
        (folders["default"] / name).touch()
    setup = " ".join(f"--{kind}-configs-dir {one}" for kind, one in folders.items())
    start = _script(
        folder / "run",
        (
            f"export CLUSTER_ID={KAFKA_CLUSTER}\n"
            f"{java} kafka.docker.KafkaDockerWrapper setup {setup} || exit\n"
            f"exec {java} -Dorg.apache.logging.log4j.level=WARN kafka.Kafka {folders['final']}/server.properties"
        ),
    )
    tool = _script(folder / "tool", f'exec {java} org.apache.kafka.tools.BrokerApiVersionsCommand "$@"')
    return Image((str(start),), {"/opt/kafka/bin/kafka-broker-api-versions.sh": tool})


def rocketmq_image(folder: Path, ports: rocketmq.Ports) -> Image:
    """Its programs, and what they find in ../conf, with ports of this machine. Raises ServerMissing."""
    rocketmq.available()
    names = rocketmq.configure_names(folder, ports)
    rocketmq.configure_broker(folder, ports)
    words = {
        "java": [*rocketmq.java(folder), "-XX:TieredStopAtLevel=1"], "of_names": rocketmq.NAMES_JAVA,
        "of_broker": rocketmq.BROKER_JAVA, "names": [str(names)],
    }  # fmt: skip
    quoted = {name: shlex.join(given) for name, given in words.items()}
    for name, text in ROCKETMQ.items():
        _script(folder / "bin" / name, text.format(**quoted))
    return Image(working_directory=folder / "bin")


def prometheus_image() -> Image:
    """Its program, and the command of its Dockerfile. Raises ServerMissing."""
    command = ("/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus")
    return Image(command, {"/bin/prometheus": tools.find("prometheus")})


def grafana_image() -> Image:
    """Its program as its start script calls it. Raises ServerMissing."""
    if shutil.which("grafana") is None:
        raise ServerMissing("there is no grafana on the PATH: install it (https://grafana.com/grafana/download)")
    home = os.environ.get("GF_PATHS_HOME", "/usr/share/grafana")
    settings = (
        "log.mode=console",
        "paths.data=data",
        "paths.logs=logs",
        "paths.provisioning=/etc/grafana/provisioning",
    )
    return Image(("grafana", "server", f"--homepath={home}", *(f"cfg:default.{one}" for one in settings)))


def scrape(config: Path, ports: Mapping[tuple[str, int], Sequence[int]]) -> None:
    """Give the settings of Prometheus, instead of a service's name that stands for its containers, their ports here."""
    settings = msgspec.yaml.decode(config.read_text())
    for job in settings["scrape_configs"]:
        found = [(name, one["port"]) for one in job.pop("dns_sd_configs") for name in one["names"]]
        job["static_configs"] = [{"targets": [f"{LOCALHOST}:{port}" for where in found for port in ports[where]]}]
    config.write_bytes(msgspec.yaml.encode(settings))


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
