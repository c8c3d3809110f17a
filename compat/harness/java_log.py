"""Log configuration of Kafka's programs."""

FORM = """\
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level={level}
rootLogger.appenderRef.console.ref=console
"""


def log_to_stderr(path, level, **more):
    """The JVM argument for a log level, with more detail for the packages in `more`; writes the configuration to `path`."""
    text = FORM.format(level=level)
    for name, (package, its_level) in more.items():
        text += f"logger.{name}.name={package}\nlogger.{name}.level={its_level}\n"
    path.write_text(text)
    return f"-Dlog4j2.configurationFile={path}"
