import java.util.List;
import java.util.Map;
import java.util.Set;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.MessagesApi;
import org.openapitools.client.model.CancelIn;
import org.openapitools.client.model.MessageIn;
import org.openapitools.client.model.ProblemOut;

public class Use {
  public static void main(String[] words) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(words[0]);
    MessagesApi messages = new MessagesApi(client);
    MessageIn message = new MessageIn().topic("orders.unpaid").delayTime("30m").id("use")
        .keys(Set.of("order-42")).body(Map.of("order", 42));
    System.out.println(messages.scheduleMessage(message).getState());
    var found = messages.getMessage("use", false);
    System.out.println(found.getMessage().getKeys().get(0) + " " + (found.getDueMs() > 1L << 32));
    var cancelled = messages.cancelMessages(new CancelIn().keys(List.of("order-42")));
    System.out.println(cancelled.getResults().get(0).getMessages().get(0).getResult());
    try {
      messages.scheduleMessage(message);
    } catch (ApiException refused) {
      ProblemOut problem = client.getObjectMapper().readValue(refused.getResponseBody(), ProblemOut.class);
      System.out.println(problem.getType());
    }
  }
}
