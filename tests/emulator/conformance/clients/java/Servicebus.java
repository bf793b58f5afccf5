/** Service Bus with azure-messaging-servicebus. ../servicebus.json lists the scenarios of all languages. */
final class Servicebus {
  public static void main(String[] args) {
    Report r = new Report("servicebus");
    ServicebusSend.add(r);
    ServicebusReceive.add(r);
    ServicebusLocks.add(r);
    ServicebusSessions.add(r);
    ServicebusTopics.add(r);
    r.run(8);
  }
}
