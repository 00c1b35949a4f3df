//! What AWS checks when one part calls another. A double calls without asking, so only the templates can tell.

use std::collections::BTreeSet;

use serde_json::json;

use crate::site::STACKS;
use crate::templates::{Stack, rights, text};

/// IN-11: every route leads to the function, which the gateway may call for any of them.
#[test]
fn in_11_every_route_reaches_the_function() {
    let stack = Stack::of("producer-api", "dev");
    let integration = stack.properties("HttpApiIntegration");
    assert_eq!(text(&integration["IntegrationType"]), "AWS_PROXY");
    assert_eq!(text(&integration["IntegrationUri"]), "ProducerApiFunction.Arn");
    assert_eq!(text(&integration["ApiId"]), "HttpApi");
    let routes: Vec<_> = stack.of_type("AWS::ApiGatewayV2::Route").collect();
    assert!(routes.len() > 10, "{}", routes.len());
    for (name, route) in routes {
        assert_eq!(text(&route["Target"]), "integrations/${HttpApiIntegration}", "{name}");
        assert_eq!(text(&route["ApiId"]), "HttpApi", "{name}");
    }
    let stages: Vec<_> = stack.of_type("AWS::ApiGatewayV2::Stage").collect();
    assert_eq!(stages.len(), 1);
    assert_eq!(
        (text(&stages[0].1["ApiId"]), text(&stages[0].1["StageName"]), &stages[0].1["AutoDeploy"]),
        ("HttpApi", "$default", &json!(true))
    );
    let permission = stack.properties("ProducerApiPermission");
    assert_eq!(text(&permission["FunctionName"]), "ProducerApiFunction");
    assert_eq!(text(&permission["Action"]), "lambda:InvokeFunction");
    assert_eq!(text(&permission["Principal"]), "apigateway.amazonaws.com");
    // The star takes in every stage, method and path.
    let source = "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${HttpApi}/*";
    assert_eq!(text(&permission["SourceArn"]), source);
}

/// IN-07: what a rule could not deliver is taken from every rule, of this bus and of the default one, and from nobody else.
#[test]
fn in_07_dead_letters_are_taken_from_rules() {
    let stack = Stack::of("event", "dev");
    let statements = &stack.properties("EventBridgeTargetDLQPolicy")["PolicyDocument"]["Statement"];
    assert_eq!(statements.as_array().map(Vec::len), Some(1));
    let statement = &statements[0];
    assert_eq!(text(&statement["Effect"]), "Allow");
    let condition = statement["Condition"].as_object().expect("not from everybody");
    assert_eq!(condition.keys().collect::<Vec<_>>(), ["ArnLike"]);
    // Behind `rule/` comes the name on the default bus, and bus and name elsewhere: the star is for both.
    let source = "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:rule/*";
    assert_eq!(condition["ArnLike"], json!({ "aws:SourceArn": source }));
    for (name, _, _) in STACKS {
        for (rule, properties) in Stack::of(name, "dev").of_type("AWS::Events::Rule") {
            assert!(properties["Targets"][0]["DeadLetterConfig"]["Arn"].is_string(), "{name} {rule}");
        }
    }
}

/// IN-03 and IN-09: a function that gets the messages of a queue may take them from it.
#[test]
fn queues_are_read_by_who_may() {
    let wanted = ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"];
    let mut seen = BTreeSet::new();
    for (name, _, _) in STACKS {
        let stack = Stack::of(name, "dev");
        for (source, mapping) in stack.of_type("AWS::Lambda::EventSourceMapping") {
            let function = text(&mapping["FunctionName"]).strip_suffix("Function").expect("a function");
            let rights = rights(&stack, function);
            let own = rights.get(text(&mapping["EventSourceArn"])).cloned().unwrap_or_default();
            assert!(wanted.iter().all(|action| own.contains(*action)), "{source}: {own:?}");
            assert_ne!(mapping["Enabled"], json!(false), "{source}");
            seen.insert(function.to_owned());
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["DlqProcessor", "EventBridgeDlqAlert"]);
}
