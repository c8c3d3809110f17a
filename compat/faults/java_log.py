"""What programs of Kafka's say of themselves."""

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
    """The argument that has a JVM say so much, and more in the packages of `more`; the file at `path` is written for it."""
    text = FORM.format(level=level)
    for name, (package, its_level) in more.items():
        text += f"logger.{name}.name={package}\nlogger.{name}.level={its_level}\n"
    path.write_text(text)
    return f"-Dlog4j2.configurationFile={path}"
