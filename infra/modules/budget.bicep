// A budget for the resource group: a message when a month's costs reach, or are forecast to reach, what was expected. It stops nothing.
param name string
@minValue(1)
@description('In the subscription\'s currency')
param amount int
param email string
@description('The first day of the month it begins with')
param startDate string = utcNow('yyyy-MM-01')

// Made once: it must begin in the month it is made in, and its beginning cannot be changed. Another amount is set in the portal.
@onlyIfNotExists()
resource budget 'Microsoft.Consumption/budgets@2026-06-01' = {
  name: name
  properties: {
    category: 'Cost'
    amount: amount
    timeGrain: 'Monthly'
    timePeriod: { startDate: startDate }
    notifications: {
      actual: {
        enabled: true
        operator: 'GreaterThanOrEqualTo'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: [email]
      }
      forecast: {
        enabled: true
        operator: 'GreaterThanOrEqualTo'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: [email]
      }
    }
  }
}
